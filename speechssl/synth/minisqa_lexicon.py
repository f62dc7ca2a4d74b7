"""English words of MiniSQA with their translations among its Mandarin words, written by hand; both sides occur in its texts.

A word may have several translations. Words of one Chinese character are left out: they stand in others that mean something else.
"""

PAIRS = """
    red 红色, blue 蓝色, green 绿色, white 白色, black 黑色, yellow 黄色, purple 紫色, grey 灰色, golden 金色, silver 银色,
    brown 棕色, pink 粉红, pink 粉色, orange 橙色, old 旧的, new 新的, beautiful 漂亮的, cheap 便宜的, wooden 木头的, copper 铜的,
    leather 皮革的, glass 玻璃的, plastic 塑料的, handmade 手工的, round 圆形的, square 方形的, foldable 折叠的, silk 丝绸的,
    ceramic 陶瓷的, lantern 灯笼, umbrella 雨伞, watch 手表, wallet 钱包, hat 帽子, scarf 围巾, glove 手套, suitcase 箱子,
    teapot 茶壶, cup 茶杯, vase 花瓶, mirror 镜子, comb 梳子, fan 扇子, chair 椅子, table 桌子, lamp 台灯, camera 相机,
    radio 收音机, clock 闹钟, sweater 毛衣, coat 外套, belt 皮带, ring 戒指, necklace 项链, bracelet 手镯, pen 钢笔, pencil 铅笔,
    notebook 笔记本, telescope 望远镜, kite 风筝, toy 玩具, hammer 锤子, bucket 水桶, basket 篮子, pillow 枕头, blanket 毯子,
    carpet 地毯, curtain 窗帘, key 钥匙, plate 盘子, kettle 水壶, mask 面具, statue 雕像, bell 铃铛, rope 绳子, ladder 梯子,
    cabbage 白菜, celery 芹菜, spinach 菠菜, potato 土豆, tomato 番茄, pumpkin 南瓜, mushroom 蘑菇, lamb 羊肉, chicken 鸡肉,
    duck 鸭肉, prawn 虾仁, crab 螃蟹, peanut 花生, walnut 核桃, pepper 辣椒, dumplings 饺子, noodle 面条, pie 馅饼, salad 沙拉,
    pancakes 煎饼, cat 小猫, dog 小狗, rabbit 兔子, tortoise 乌龟, parrot 鹦鹉, pigeon 鸽子, squirrel 松鼠, hamster 仓鼠,
    hedgehog 刺猬, goat 山羊, sheep 绵羊, pony 小马, donkey 毛驴, duck 鸭子, goose 大鹅, peacock 孔雀, owl 猫头鹰, fox 狐狸,
    monkey 猴子, lizard 蜥蜴, frog 青蛙, swan 天鹅, piano 钢琴, organ 风琴, violin 小提琴, cello 大提琴, guitar 吉他, flute 长笛,
    harp 竖琴, harmonica 口琴, accordion 手风琴, trumpet 小号, trombone 长号, ancient 古代, modern 现代, classical 古典,
    northern 北方, southern 南方, eastern 东部, western 西部, coastal 沿海, french 法语, german 德语, russian 俄语, japanese 日语,
    korean 韩语, thai 泰语, vietnamese 越南语, arabic 阿拉伯语, spanish 西班牙语, portuguese 葡萄牙语, italian 意大利语,
    greek 希腊语, polish 波兰语, dutch 荷兰语, swedish 瑞典语, norwegian 挪威语, danish 丹麦语, finnish 芬兰语, turkish 土耳其语,
    persian 波斯语, hindi 印地语, malay 马来语, czech 捷克语, hungarian 匈牙利语, tibetan 藏语, bicycle 自行车, motorbike 摩托车,
    car 小汽车, bus 公交车, truck 卡车, boat 小船, skateboard 滑板车, tractor 拖拉机, bakery 面包店, bookshop 书店, bank 银行,
    pharmacy 药店, factory 工厂, school 学校, theatre 剧院, museum 博物馆, library 图书馆, clinic 诊所, restaurant 饭店,
    collecting 收藏, studying 研究, carving 雕刻, drawing 绘制, photographing 拍摄, butterflies 蝴蝶, insects 昆虫, fossils 化石,
    mushrooms 蘑菇, lighthouses 灯塔, castles 城堡, windmills 风车, puppets 木偶, history 历史, literature 文学, philosophy 哲学,
    art 美术, music 音乐, architecture 建筑, mathematics 数学, physics 物理, chemistry 化学, medicine 医学, law 法律,
    economics 经济, geography 地理, religion 宗教, drama 戏剧, dance 舞蹈, poetry 诗歌, archaeology 考古, sculpture 雕塑,
    psychology 心理学, chinese 中国, european 欧洲, asian 亚洲, indian 印度, roman 罗马, comparative 比较, theoretical 理论,
    international 国际, january 一月, february 二月, march 三月, april 四月, may 五月, june 六月, july 七月, august 八月,
    september 九月, october 十月, november 十一月, december 十二月, dollars 美元, euros 欧元, spring 春天, summer 夏天,
    autumn 秋天, winter 冬天, morning 早上, evening 晚上, medal 奖章, doctor 医生, nurse 护士, lawyer 律师, judge 法官,
    journalist 记者, novelist 作家, poet 诗人, painter 画家, singer 歌手, cook 厨师, carpenter 木匠, blacksmith 铁匠, tailor 裁缝,
    hairdresser 理发师, engineer 工程师, architect 建筑师, designer 设计师, scientist 科学家, pharmacist 药剂师, dentist 牙医,
    vet 兽医, fisherman 渔民, miner 矿工, sailor 水手, pilot 飞行员, fire fighter 消防员, police officer 警察, postman 邮递员,
    translator 翻译, guide 导游, photographer 摄影师, musician 音乐家, dancer 舞蹈家, pianist 钢琴师, sculptor 雕塑家,
    baker 面包师, librarian 图书管理员, geologist 地质学家, historian 历史学家, botanist 植物学家, zoologist 动物学家,
    magician 魔术师, coach 教练, secretary 秘书, cleaner 清洁工, watchmaker 钟表匠, senior 高级, trainee 实习, born 出生,
    holiday 度假, married 结婚, teacher 老师, neighbour 邻居, house 房子, birthday 生日, wedding 婚礼, university 大学,
    salary 工资, debt 债务, food 食物, pet 宠物, colour 颜色, market 市场, train 火车, language 语言, hobby 爱好, animal 动物,
    instrument 乐器, volunteer 义工, band 乐队, weather 天气, newspaper 报纸, concert 音乐会, harvest 收成, rainbow 彩虹
"""

LEXICON = tuple((pair.rpartition(" ")[0].strip(), pair.rpartition(" ")[2]) for pair in " ".join(PAIRS.split()).split(", "))
